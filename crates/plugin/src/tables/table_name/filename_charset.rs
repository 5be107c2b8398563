//! Letters that file names spell as `@` and two characters.
//!
//! Both servers' character set `filename` has 1510 of them: letters of the European alphabets, Armenian, Roman numerals,
//! circled and full-width letters. The table comes from MariaDB 10.11 (`CONVERT(X'403047' USING filename)`). Each row has a
//! first character, and pairs of a second character and the letter.

/// Decodes the letter that is written as `@`, `first`, `second`.
pub fn letter(first: u8, second: u8) -> Option<char> {
    let (_, row) = ROWS.iter().find(|(of, _)| *of == first)?;
    let mut characters = row.chars();
    while let (Some(of), Some(letter)) = (characters.next(), characters.next()) {
        if of == char::from(second) {
            return Some(letter);
        }
    }
    None
}

#[rustfmt::skip]
const ROWS: [(u8, &str); 63] = [
    (b'0', "GÀHÁIÂJÃKÄLÅMÆNÇOÈPÉQÊRËSÌTÍUÎVÏWÐXÑYÒZÓgàháiâjãkälåmænçoèpéqêrësìtíuîvïwðxñyòzó"),
    (b'1', "GÔHÕIÖKØLÙMÚNÛOÜPÝQÞRŸSĀTĂUĄVĆWĈXĊYČZĎgôhõiöjßkølùmúnûoüpýqþrÿsātăuąvćwĉxċyčzď"),
    (b'2', "GĐHĒIĔJĖKĘLĚMĜNĞOĠPĢQĤRĦSĨTĪUĬVĮXĲYĴZĶgđhēiĕjėkęlěmĝnğoġpģqĥrħsĩtīuĭvįwıxĳyĵzķ"),
    (b'3', "HĹIĻJĽKĿLŁMŃNŅOŇQŊRŌSŎTŐUŒVŔWŖXŘYŚZŜgĸhĺiļjľkŀlłmńnņoňpŉqŋrōsŏtőuœvŕwŗxřyśzŝ"),
    (b'4', "GŞHŠIŢJŤKŦLŨMŪNŬOŮPŰQŲRŴSŶTŹUŻVŽgşhšiţjťkŧlũmūnŭoůpűqųrŵsŷtźużvžwſ"),
    (b'5', "yΐ"),
    (b'6', "GΆHΈIΉJΊLΑNΓOΔPΕQΖRΗTΙVΛWΜXΝYΞZΟgάhέiήjίkΰlαmβnγoδpεqζrηsθtιuκvλwμxνyξzο"),
    (b'7', "HΡKΤLΥNΧOΨPΩQΪRΫSΌTΎUΏWΒXΘYϒZϓgπhρiςjσkτlυmφnχoψpωqϊrϋsόtύuώwϐxϑ"),
    (b'8', "GϔHΦIΠLϚMϜNϞOϠPϢQϤRϦSϨTϪUϬVϮWΚYΣhϕiϖjϗkϙlϛmϝnϟoϡpϣqϥrϧsϩtϫuϭvϯwϰxϱyϲzϳ"),
    (b'9', "LϽMϾNϿgϵh϶iϸjϻkϼ"),
    (b'@', "AⒶBⒷCⒸDⒹEⒺFⒻGⒼHⒽIⒾJⒿKⓀLⓁMⓂNⓃOⓄPⓅQⓆRⓇSⓈTⓉUⓊVⓋWⓌXⓍYⓎZⓏaⓐbⓑcⓒdⓓeⓔfⓕgⓖhⓗiⓘjⓙkⓚlⓛmⓜnⓝoⓞpⓟqⓠrⓡsⓢtⓣuⓤvⓥwⓦxⓧyⓨzⓩ"),
    (b'A', "@Ａ"),
    (b'B', "@Ｂ"),
    (b'C', "@Ｃ"),
    (b'D', "@Ｄ"),
    (b'E', "@Ｅ"),
    (b'F', "@Ｆ"),
    (b'G', "0А1Ф2Ј3Ѹ4Ҧ5Ӎ6Ӵ8Մ9Ⅰ@ＧbƳcǞdȈeȰlḀmḨnṐoṸpṠqẾrỦsἈtἪvὬwᾈxᾬ"),
    (b'H', "0Б1Х2Љ3Ѻ4Ҩ6Ӷ7Ա8Յ9Ⅱ@ＨaƂbƵcǠdȊeȲhƝlḂmḪnṒoṺqỀrỨsἉtἫvὭwᾉxᾭ"),
    (b'I', "0В1Ц2Њ3Ѽ4Ҫ5Ӑ6Ӹ7Բ8Ն9Ⅲ@ＩaƄbƸcǢdȌlḄmḬnṔoṼqỂrỪsἊtἬvὮwᾊxᾮ"),
    (b'J', "0Г1Ч2Ћ3Ѿ4Ҭ5Ӓ7Գ8Շ9Ⅳ@ＪaƇcǤdȎgƓiƮlḆmḮnṖoṾqỄrỬsἋtἭvὯwᾋxᾯ"),
    (b'K', "0Д1Ш2Ќ3Ҁ4Ү5Ӕ7Դ8Ո9Ⅴ@ＫaƋcǦdȐhƟlḈmḰnṘoẀqỆrỮsἌtἮvᾺwᾌxᾸ"),
    (b'L', "0Е1Щ2Ѝ4Ұ5Ӗ7Ե8Չ9Ⅵ@ＬcǨdȒiƱlḊmḲnṚoẂpẠqỈrỰsἍtἯuὙvΆwᾍxᾹ"),
    (b'M', "0Ж1Ъ2Ў3Ҋ4Ҳ5Ә7Զ8Պ9Ⅶ@ＭaƑcǪdȔgƔiƲlḌmḴnṜoẄpẢqỊrỲsἎtἸvῈwᾎ"),
    (b'N', "0З1Ы2Џ3Ҍ4Ҵ5Ӛ7Է8Ջ9Ⅷ@ＮaǶbƼcǬdȖlḎmḶnṞoẆpẤqỌrỴsἏtἹuὛvΈwᾏxᾼyῨ"),
    (b'O', "0И1Ь2Ѡ3Ҏ4Ҷ5Ӝ7Ը8Ռ9Ⅸ@ＯaƘbǄcǮdȘeȺlḐmḸoẈpẦqỎrỶsἘtἺvῊwᾘyῩ"),
    (b'P', "0Й1Э2Ѣ3Ґ4Ҹ5Ӟ6Ԁ7Թ8Ս9Ⅹ@ＰaȽbǇdȚeȻlḒmḺnṢoẊpẨqỐrỸsἙtἻuὝvΉwᾙ"),
    (b'Q', "0К1Ю2Ѥ3Ғ4Һ5Ӡ6Ԃ7Ժ8Վ9Ⅺ@ＱbǊcǱdȜeȾfƁlḔmḼnṤoẌpẪqỒsἚtἼvῚwᾚ"),
    (b'R', "0Л1Я2Ѧ3Ҕ4Ҽ5Ӣ6Ԅ7Ի8Տ9Ⅻ@ＲaȠbǍcǴdȞfƆgƗlḖmḾnṦoẎpẬqỔsἛtἽuὟvΊwᾛ"),
    (b'S', "0М1Ѐ2Ѩ3Җ4Ҿ5Ӥ6Ԇ7Լ8Ր9Ⅼ@ＳaƠbǏcǸgƖlḘmṀnṨoẐpẮqỖsἜtἾvῸwᾜyῬ"),
    (b'T', "0Н1Ё2Ѫ3Ҙ4Ӏ5Ӧ6Ԉ7Խ8Ց9Ⅽ@ＴaƢbǑcǺdȢfƉiƷlḚmṂnṪoẒpẰqỘsἝtἿvΌwᾝxῌ"),
    (b'U', "0О1Ђ2Ѭ3Қ4Ӂ5Ө6Ԋ7Ծ8Ւ9Ⅾ@ＵaƤbǓcǼdȤfƊlḜmṄnṬoẔpẲqỚtὈvῪwᾞ"),
    (b'V', "0П1Ѓ2Ѯ3Ҝ4Ӄ5Ӫ6Ԍ7Կ8Փ9Ⅿ@ＶaƧbǕcǾdȦhƦiɁlḞmṆnṮpẴqỜtὉvΎwᾟ"),
    (b'W', "0Р1Є2Ѱ3Ҟ4Ӆ5Ӭ6Ԏ7Հ8Ք@ＷbǗcȀdȨfƏlḠmṈnṰpẶqỞtὊuὨvῺwᾨ"),
    (b'X', "0С1Ѕ2Ѳ3Ҡ4Ӈ5Ӯ7Ձ8Օ@ＸbǙcȂdȪlḢmṊnṲpẸqỠtὋuὩvΏwᾩ"),
    (b'Y', "0Т1І2Ѵ3Ң4Ӊ5Ӱ7Ղ@ＹaƬbǛcȄdȬfƐgƜhƩlḤmṌnṴpẺqỢsἨtὌuὪwᾪxῘyῼ"),
    (b'Z', "0У1Ї2Ѷ3Ҥ4Ӌ5Ӳ7Ճ@ＺaƯbƎcȆdȮlḦmṎnṶpẼqỤsἩtὍuὫwᾫxῙ"),
    (b'a', "@ａ"),
    (b'b', "@ｂ"),
    (b'c', "@ｃ"),
    (b'd', "@ｄ"),
    (b'e', "@ｅ"),
    (b'f', "@ｆ"),
    (b'g', "0а1ф2ј3ѹ4ҧ5ӎ6ӵ8մ9ⅰ@ｇaƀbƴcǟdȉeȱgɝhɱiʅjʙkʭlḁmḩnṑoṹpẛqếrủsἀtἢvὤwᾀxᾤyῒ"),
    (b'h', "0б1х2љ3ѻ4ҩ6ӷ7ա8յ9ⅱ@ｈaƃbƶcǡdȋeȳgɞhɲiʆjʚkʮlḃmḫnṓoṻqềrứsἁtἣvὥwᾁxᾥyΐzῶ"),
    (b'i', "0в1ц2њ3ѽ4ҫ5ӑ6ӹ7բ8ն9ⅲ@ｉaƅbƹcǣdȍeȴgɟhɳiʇjʛkʯlḅmḭnṕoṽqểrừsἂtἤvὦwᾂxᾦzῷ"),
    (b'j', "0г1ч2ћ3ѿ4ҭ5ӓ7գ8շ9ⅳ@ｊaƈbƺcǥdȏeȵgɠhɴiʈjʜlḇmḯnṗoṿqễrửsἃtἥvὧwᾃxᾧ"),
    (b'k', "0д1ш2ќ3ҁ4ү5ӕ7դ8ո9ⅴ@ｋaƌbƻcǧdȑeȶgɡhɵiʉjʝlḉmḱnṙoẁqệrữsἄtἦuὐvὰwᾄxᾰyῖ"),
    (b'l', "0е1щ2ѝ4ұ5ӗ7ե8չ9ⅵ@ｌaƍcǩdȓeȷgɢhɶiʊjʞlḋmḳnṛoẃpạqỉrựsἅtἧuὑvάwᾅxᾱyῗ"),
    (b'm', "0ж1ъ2ў3ҋ4ҳ5ә7զ8պ9ⅶ@ｍaƒbƾcǫdȕeȸgɣhɷiʋjʟlḍmḵnṝoẅpảqịrỳsἆtἰuὒvὲwᾆxᾲ"),
    (b'n', "0з1ы2џ3ҍ4ҵ5ӛ7է8ջ9ⅷ@ｎaƕbƽcǭdȗeȹfɐgɤhɸiʌjʠlḏmḷnṟoẇpấqọrỵsἇtἱuὓvέwᾇxᾳyῠ"),
    (b'o', "0и1ь2ѡ3ҏ4ҷ5ӝ7ը8ռ9ⅸ@ｏaƙbǆcǯdșfɑgɥhɹiʍjʡlḑmḹnṡoẉpầqỏrỷsἐtἲuὔvὴwᾐxᾴyῡ"),
    (b'p', "0й1э2ѣ3ґ4ҹ5ӟ6ԁ7թ8ս9ⅹ@ｐaƚbǉcǰdțeȼfɒgɦhɺiʎjʢlḓmḻnṣoẋpẩqốrỹsἑtἳuὕvήwᾑyῢ"),
    (b'q', "0к1ю2ѥ3ғ4һ5ӡ6ԃ7ժ8վ9ⅺ@ｑaƛbǌcǳdȝfɓgɧhɻiʏjʣlḕmḽnṥoẍpẫqồsἒtἴuὖvὶwᾒxᾶyΰ"),
    (b'r', "0л1я2ѧ3ҕ4ҽ5ӣ6ԅ7ի8տ9ⅻ@ｒaƞbǎcǵdȟeȿfɔgɨhɼiʐjʤlḗmḿnṧoẏpậqổsἓtἵuὗvίwᾓxᾷyῤ"),
    (b's', "0м1ѐ2ѩ3җ4ҿ5ӥ6ԇ7լ8ր9ⅼ@ｓaơbǐcǹdȡeɀfɕgɩhɽiʑjʥlḙmṁnṩoẑpắqỗsἔtἶvὸwᾔxῂyῥ"),
    (b't', "0н1ё2ѫ3ҙ5ӧ6ԉ7խ8ց9ⅽ@ｔaƣbǒcǻdȣfɖgɪhɾiʒjʦlḛmṃnṫoẓpằqộsἕtἷvόwᾕxῃyῦ"),
    (b'u', "0о1ђ2ѭ3қ4ӂ5ө6ԋ7ծ8ւ9ⅾ@ｕaƥbǔcǽdȥfɗgɫhɿiʓjʧlḝmṅnṭoẕpẳqớtὀvὺwᾖxῄyῧ"),
    (b'v', "0п1ѓ2ѯ3ҝ4ӄ5ӫ6ԍ7կ8փ9ⅿ@ｖaƨbǖcǿdȧfɘgɬhʀiʔjʨlḟmṇnṯoẖpẵqờtὁvύwᾗ"),
    (b'w', "0р1є2ѱ3ҟ4ӆ5ӭ6ԏ7հ8ք@ｗaƪbǘcȁdȩfəgɭhʁiʕjʩlḡmṉnṱoẗpặqởtὂuὠvὼwᾠxῆ"),
    (b'x', "0с1ѕ2ѳ3ҡ4ӈ5ӯ7ձ8օ@ｘaƫbǚcȃdȫfɚgɮhʂiʖjʪlḣmṋnṳoẘpẹqỡtὃuὡvώwᾡxῇyῲ"),
    (b'y', "0т1і2ѵ3ң4ӊ5ӱ7ղ@ｙaƭbǜcȅdȭfɛgɯhʃiʗjʫlḥmṍnṵoẙpẻqợsἠtὄuὢwᾢxῐyῳ"),
    (b'z', "0у1ї2ѷ3ҥ4ӌ5ӳ7ճ@ｚaưbǝcȇdȯfɜgɰhʄiʘjʬlḧmṏnṷoẚpẽqụsἡtὅuὣwᾣxῑ"),
];
